-- include: schedule
-- Ends of leases: finished, released or expired; then the queue is rescheduled.

-- H1: a new token. It grows with the clock, so that a server that lost its last second of writes
-- does not give the same token twice.
local function next_token()
  C[C_LAST_TOKEN] = math.max(C[C_LAST_TOKEN] + 1, now * 1024)
  return C[C_LAST_TOKEN]
end

local function renew_token(t)
  t[T_TOKEN] = next_token()
end

-- H3: the task whose current token this is, or nil; none in a cancelled crawl (I3).
local function lease_by_token(number, token)
  local t = C and C[C_STATUS] ~= 'cancelled' and task_by_number(number)
  return t and t[T_TOKEN] == token and t or nil
end

local function refund(q, cost)
  q[Q_SPENT] = max(0, q[Q_SPENT] - cost)
  if q[Q_SESSION] >= 0 then
    q[Q_SESSION] = max(0, q[Q_SESSION] - cost)
  end
end

-- D5: a task leased by name ends as any other, but took no slot, and its lease visited no host.
local function end_named(t, q)
  if not t[T_NAMED] then
    return false
  end
  t[T_NAMED] = false
  q[Q_NAMED] = q[Q_NAMED] - 1
  q[Q_IN_FLIGHT] = q[Q_IN_FLIGHT] + 1
  return true
end

-- C7: a loan ends with the last of its tasks; D1: its pace counts from the end of each.
local function end_loan(t, q, r)
  if t[T_LOANED] then
    if r[R_PACE] > 0 then
      q[Q_LAST_START] = now
      keep_pace(q, r)
    end
    t[T_LOANED] = false
    q[Q_LOANED] = q[Q_LOANED] - 1
    if q[Q_LOANED] == 0 then
      q[Q_LOAN_CRASHES] = 0
    end
  end
end

-- D1: next-ready is at least end (or start) + delay; C7: a task on loan counts as started now.
local function end_visit(t, q, r, delay)
  local start = now
  if t[T_LOANED] then
    q[Q_LAST_START] = now
  elseif r[R_FROM_START] then
    start = t[T_CLAIMED]
  end
  postpone(q, start + delay, 'delay')
  q[Q_LAST_END] = now
end

-- Make a leased task pending again, due now.
local function return_task(number, t, q)
  renew_token(t)
  set_state(number, t, q, PENDING)
  enqueue(number, t, q, now)
end

local function revive_if_affordable(q, r)
  if q[Q_RETIRED] == 'budget' and not is_over_budget(q, r) then
    revive(q)
  end
end

-- H5, E3, D7: give a task back: no attempt is counted, its cost is refunded, it keeps its order
-- key; the visit ends now.
local function release_lease(number, t)
  local q = queue_by_number(t[T_QUEUE])
  local r, was_named = rules_of(q), end_named(t, q)
  return_task(number, t, q)
  t[T_WORKER] = ''
  refund(q, t[T_COST])
  if not was_named then
    end_visit(t, q, r, delay_of(q, r))
  end
  end_loan(t, q, r)
  revive_if_affordable(q, r)
  reschedule(q)
end

-- G2: record a failed attempt, for the dead letter.
local function add_to_history(t, reason)
  local history = t[T_HISTORY]
  history[#history + 1] = { now / 1000, t[T_WORKER], reason }
end

-- H4: an expired lease counts as an attempt; the task is due at once, or dead after too many.
local function expire_lease(number, t, q, r)
  local was_named = end_named(t, q)
  t[T_ATTEMPTS], t[T_CRASHES] = t[T_ATTEMPTS] + 1, t[T_CRASHES] + 1
  t[T_REASON] = 'lease expired'
  add_to_history(t, t[T_REASON])
  C[C_VISITS] = C[C_VISITS] + 1
  outcomes.crashed = (outcomes.crashed or 0) + 1
  q[Q_ERRORS_IN_ROW] = q[Q_ERRORS_IN_ROW] + 1
  local max_crashes = C[C_MAX_CRASHES] -- 0: no limit
  local is_dead = t[T_FAILURES] > C[C_MAX_RETRIES]
    or (max_crashes > 0 and t[T_CRASHES] >= max_crashes)
  log_event(is_dead and 'died' or 'expired', url_of(t), t[T_WORKER])
  if is_dead then
    renew_token(t)
    t[T_FINISHED] = now
    set_state(number, t, q, DEAD)
  else
    t[T_FINISHED] = -1
    return_task(number, t, q)
  end
  if not was_named then
    end_visit(t, q, r, delay_of(q, r))
  end
  end_loan(t, q, r)
  reschedule(q)
end

-- H4: end overdue leases, in (deadline, task number) order. C7: of a loan, as many count as crashes
-- as there are slots; the others are given back.
local function expire_overdue(limit)
  if C[C_STATUS] == 'cancelled' or limit <= 0 then
    return 0
  end
  local overdue = call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, limit)
  for _, member in ipairs(overdue) do
    local number = unpack_bytes('>I5', member)
    local t = task_by_number(number)
    local q = queue_by_number(t[T_QUEUE])
    local r = rules_of(q)
    if t[T_LOANED] and q[Q_LOAN_CRASHES] >= r[R_SLOTS] then
      release_lease(number, t)
    else
      q[Q_LOAN_CRASHES] = q[Q_LOAN_CRASHES] + (t[T_LOANED] and 1 or 0)
      expire_lease(number, t, q, r)
    end
  end
  return #overdue
end
