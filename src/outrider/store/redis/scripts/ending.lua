-- Visits end: finished, released or expired; then the queue is judged.

-- H1. Of the clock's size: a server that forgot its last second must not give the same one twice.
local function next_token()
  C[C_TOKENS] = math.max(C[C_TOKENS] + 1, now * 1024)
  return C[C_TOKENS]
end

local function rename(t)
  t[T_TOKEN] = next_token()
end

-- H3: the leased task whose current token this is; cancelled leases are refused (I3).
local function held_by(number, token)
  local t = C and C[C_STATUS] ~= 'cancelled' and task_of(number)
  return t and t[T_TOKEN] == token and t or nil
end

local function refund(q, cost)
  q[Q_SPENT] = max(0, q[Q_SPENT] - cost)
  if q[Q_SESSION] >= 0 then
    q[Q_SESSION] = max(0, q[Q_SESSION] - cost)
  end
end

-- D5: one lent by name ends as any other does, and did not touch its host by itself.
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
local function end_lent(t, q, r)
  if t[T_LENT] then
    if r[R_PACE] > 0 then
      q[Q_LAST_START] = now
      keep_pace(q, r)
    end
    t[T_LENT] = false
    q[Q_LENT] = q[Q_LENT] - 1
    if q[Q_LENT] == 0 then
      q[Q_CRASHED] = 0
    end
  end
end

-- D1: next-ready is at least end (or start) + delay; C7: lent, it counts as begun now.
local function visit_ended(t, q, r, delay)
  local start = now
  if t[T_LENT] then
    q[Q_LAST_START] = now
  elseif r[R_FROM_START] then
    start = t[T_CLAIMED]
  end
  postpone(q, start + delay, 'delay')
  q[Q_LAST_END] = now
end

local function give_back(number, t, q)
  rename(t)
  move(number, t, q, PENDING)
  line_up(number, t, q, now)
end

local function return_if_affordable(q, r)
  if q[Q_RETIRED] == 'budget' and not is_over_budget(q, r) then
    bring_back(q)
  end
end

-- H5, E3, D7: unpunished, refunded, in its old place; the visit's end is now.
local function release(number, t)
  local q = queue_of(t[T_QUEUE])
  local r, was_named = rules_of(q), end_named(t, q)
  give_back(number, t, q)
  t[T_WORKER] = ''
  refund(q, t[T_COST])
  if not was_named then
    visit_ended(t, q, r, delay_of(q, r))
  end
  end_lent(t, q, r)
  return_if_affordable(q, r)
  touch(q)
end

-- G2: every attempt that went wrong, for the dead letter.
local function remember(t, reason)
  local history = t[T_HISTORY]
  history[#history + 1] = { now / 1000, t[T_WORKER], reason }
end

-- H4: counts as an attempt, due at once; dead after too many.
local function crash(number, t, q, r)
  local was_named = end_named(t, q)
  t[T_ATTEMPTS], t[T_CRASHES] = t[T_ATTEMPTS] + 1, t[T_CRASHES] + 1
  t[T_REASON] = 'lease expired'
  remember(t, t[T_REASON])
  C[C_VISITS] = C[C_VISITS] + 1
  outcomes.crashed = (outcomes.crashed or 0) + 1
  q[Q_ERRORS] = q[Q_ERRORS] + 1
  local is_dead = t[T_FAILURES] > C[C_MAX_RETRIES] or t[T_CRASHES] >= C[C_MAX_CRASHES]
  note(is_dead and 'died' or 'expired', url_of(t), t[T_WORKER])
  if is_dead then
    rename(t)
    t[T_FINISHED] = now
    move(number, t, q, DEAD)
  else
    t[T_FINISHED] = -1
    give_back(number, t, q)
  end
  if not was_named then
    visit_ended(t, q, r, delay_of(q, r))
  end
  end_lent(t, q, r)
  touch(q)
end

-- H4: overdue leases, in (deadline, arrival) order; C7: of a loan as many are crashes as can have
-- been under way, the others go back.
local function take_back(limit)
  if C[C_STATUS] == 'cancelled' or limit <= 0 then
    return 0
  end
  local overdue = call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, limit)
  for _, member in ipairs(overdue) do
    local number = parts('>I5', member)
    local t = task_of(number)
    local q = queue_of(t[T_QUEUE])
    local r = rules_of(q)
    if t[T_LENT] and q[Q_CRASHED] >= r[R_SLOTS] then
      release(number, t)
    else
      q[Q_CRASHED] = q[Q_CRASHED] + (t[T_LENT] and 1 or 0)
      crash(number, t, q, r)
    end
  end
  return #overdue
end
