-- include: add_task, leases
-- Applying a verdict to the task, its queue and the crawl (D1, D3, D4, E3, E6, G3).
local function schedule_revisit(number, t, q, revisit)
  local kind = decode(call('HGET', prefix .. K_KINDS, t[T_KIND]))
  kind[1] = revisit[2]
  set_kind(t, kind_number(kind))
  t[T_LANE], t[T_ORDER] = revisit[3], revisit[4] .. pack('>I6', next_tie(t[T_ROLL]))
  t[T_TEXT] = sub(t[T_TEXT], 1, t[T_SPLIT]) .. revisit[5]
  t[T_HISTORY] = {}
  reset_attempts(t)
  set_state(number, t, q, PENDING)
  enqueue(number, t, q, now + revisit[1])
  t[T_FINISHED] = now
end

-- G1: a task goes back as its worker wants it; C2: it keeps its tie, or is the first.
local function requeue_task(number, t, q, requeue)
  local kind = decode(call('HGET', prefix .. K_KINDS, t[T_KIND]))
  if kind[1] ~= requeue[2] then
    kind[1] = requeue[2]
    set_kind(t, kind_number(kind))
  end
  local tie = requeue[7] and string.rep('\0', 6) or sub(t[T_ORDER], 11)
  t[T_LANE], t[T_ORDER] = requeue[3], requeue[4] .. tie
  t[T_TEXT] = sub(t[T_TEXT], 1, t[T_SPLIT]) .. requeue[5]
  t[T_META] = requeue[6] or t[T_META]
  t[T_FINISHED] = -1
  set_state(number, t, q, PENDING)
  enqueue(number, t, q, now + requeue[1])
end

-- set_state, written out for the most frequent case: a leased task is done, dead or dropped.
local function end_lease(number, t, q, state)
  local field = t[T_KIND] * 8
  count_changes[field + LEASED] = (count_changes[field + LEASED] or 0) - 1
  count_changes[field + state] = (count_changes[field + state] or 0) + 1
  C[C_LEASED], q[Q_IN_FLIGHT] = C[C_LEASED] - 1, q[Q_IN_FLIGHT] - 1
  t[T_STATE], t[T_DRAWN] = state, -1
  count_ended(q, state, 1)
  ended_leases[#ended_leases + 1] = pack('>I5', number)
  dirty_tasks[number] = t
end

-- B2: the new state; G3: a revisit is pending again as another type, its attempts at 0.
local function apply_to_task(number, t, q, v)
  t[T_REASON] = v[V_REASON] or false
  if v[V_REASON] and v[V_COUNTS] then
    add_to_history(t, v[V_REASON])
  end
  t[T_WORKER] = ''
  if v[V_ANSWER] then
    t[T_ANSWER], t[T_ANSWERED] = v[V_ANSWER], now
    C[C_VISITS_DONE], C[C_BYTES] = C[C_VISITS_DONE] + 1, C[C_BYTES] + v[V_SIZE]
    q[Q_VISITS_DONE], q[Q_BYTES] = q[Q_VISITS_DONE] + 1, q[Q_BYTES] + v[V_SIZE]
  end
  if v[V_REVISIT] then
    schedule_revisit(number, t, q, v[V_REVISIT])
  elseif v[V_REQUEUE] then
    requeue_task(number, t, q, v[V_REQUEUE])
  elseif v[V_STATE] == PENDING then
    t[T_FINISHED] = -1
    set_state(number, t, q, PENDING)
    enqueue(number, t, q, now + v[V_RETRY_IN])
  else
    t[T_FINISHED] = now
    end_lease(number, t, q, v[V_STATE])
    C[C_FORGOTTEN] = C[C_FORGOTTEN] + (is_forgotten(t) and 1 or 0)
  end
end

-- D1: the last delay; where leases draw it that of the last start, which a verdict may raise.
local function last_delay(t, q, r, v, drawn)
  if drawn < 0 or r[R_SPREAD] == 0 then
    return v[V_LAST_DELAY]
  elseif t[T_CLAIMED] >= q[Q_LAST_START] then
    return max(v[V_LAST_DELAY], q[Q_LAST_DELAY])
  end
  return q[Q_LAST_DELAY]
end

-- D3, D4: the politeness state that the worker computed; nil leaves a counter as it is.
local function apply_politeness(q, v)
  q[Q_LEVEL] = v[V_LEVEL] or q[Q_LEVEL]
  if v[V_CALM] then
    q[Q_CALM] = v[V_CALM] > 0 and q[Q_CALM] + 1 or 0
    -- That many Done in a row lower the level by one.
    if v[V_CALM] > 0 and q[Q_CALM] >= v[V_CALM] then
      q[Q_LEVEL], q[Q_CALM] = max(0, q[Q_LEVEL] - 1), 0
    end
  end
  q[Q_THROTTLES_IN_ROW] = v[V_THROTTLES_IN_ROW] or q[Q_THROTTLES_IN_ROW]
  q[Q_UNREACHABLE_IN_ROW] = v[V_UNREACHABLE_IN_ROW] or q[Q_UNREACHABLE_IN_ROW]
  q[Q_BLOCKS_IN_ROW] = v[V_BLOCKS_IN_ROW] or q[Q_BLOCKS_IN_ROW]
  q[Q_CRAWL_DELAY] = v[V_CRAWL_DELAY] or q[Q_CRAWL_DELAY]
  if v[V_OUTCOME] == 'done' then
    q[Q_ERRORS_IN_ROW] = 0
  elseif v[V_OUTCOME] ~= 'dropped' and v[V_OUTCOME] ~= 'again' then
    q[Q_ERRORS_IN_ROW] = q[Q_ERRORS_IN_ROW] + 1
  end
end

-- E3: the cost stays charged exactly when the attempt counts.
local function apply_charge(t, q, v)
  if v[V_COUNTS] then
    t[T_ATTEMPTS] = t[T_ATTEMPTS] + 1
  else
    refund(q, t[T_COST])
  end
  t[T_FAILURES] = t[T_FAILURES] + v[V_FAILED]
  t[T_THROTTLES] = t[T_THROTTLES] + v[V_THROTTLED]
  q[Q_SPENT] = q[Q_SPENT] + v[V_PENALTY]
  if q[Q_SESSION] >= 0 then
    q[Q_SESSION] = q[Q_SESSION] + v[V_PENALTY]
  end
end

-- O1: count the visits of tasks that were blocked, and are done now.
local function count_blocks(t, outcome)
  if outcome == 'blocked' then
    t[T_BLOCKS] = t[T_BLOCKS] + 1
  elseif outcome == 'done' and t[T_BLOCKS] > 0 then
    C[C_RECOVERED], t[T_BLOCKS] = C[C_RECOVERED] + 1, 0
  end
end

local function apply_verdict(number, t, v)
  local q = queue_by_number(t[T_QUEUE])
  local r = rules_of(q)
  if end_named(t, q) and v[V_TOUCHED] then -- it visited its host after all: started and ended now
    t[T_CLAIMED], q[Q_LAST_START] = now, now
  end
  C[C_VISITS] = C[C_VISITS] + 1
  outcomes[v[V_OUTCOME]] = (outcomes[v[V_OUTCOME]] or 0) + 1
  apply_charge(t, q, v)
  local drawn = t[T_DRAWN]
  count_blocks(t, v[V_OUTCOME])
  apply_to_task(number, t, q, v)
  if v[V_TOUCHED] then
    q[Q_LAST_DELAY] = last_delay(t, q, r, v, drawn)
    apply_politeness(q, v)
    end_visit(t, q, r, v[V_DELAY])
    if v[V_SNOOZE] > 0 then
      postpone(q, now + v[V_SNOOZE], v[V_SNOOZE_REASON] or 'delay')
    end
  end
  end_loan(t, q, r)
  if v[V_RETIRE] then
    retire(q, v[V_RETIRE])
  end
  local is_done = r[R_MAX_DONE] > 0 and q[Q_VISITS_DONE] >= r[R_MAX_DONE]
  if is_done or (r[R_MAX_BYTES] > 0 and q[Q_BYTES] >= r[R_MAX_BYTES]) then
    retire(q, 'quota')
  end
  revive_if_affordable(q, r)
  reschedule(q)
end
