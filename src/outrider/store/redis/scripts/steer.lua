-- include: add_task, replace_rules
-- steer: apply an operator's action to queues.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of the action's name, its milliseconds, the numbers of the crawl's new rules
-- (false: they stay) and those rules as JSON, and whether every queue has the crawl's rules after
-- this. ARGV[6]: a batch of rules only (see decode_batch). ARGV[7]: msgpack of each queue's number,
-- the number of its rules when they were read, and the position of its new rules in the batch.
-- ARGV[8]: who acts (see `sign`).
-- Returns 1, also if there is no crawl; nil: the rules of the crawl or of a queue changed since, so
-- read them and try again.
local action, batch, wanted = decode(ARGV[5]), decode_batch(ARGV[6]), decode(ARGV[7])
if not C then -- I1
  return 1
elseif is_stale() then
  return false
end
for _, one in ipairs(wanted) do
  if queue_by_number(one[1])[Q_RULES] ~= one[2] then
    return false
  end
end
check_memory()

local function retire_by_rule(q, old, r)
  if r[R_RETIRED] == old[R_RETIRED] then
    return
  elseif r[R_RETIRED] then
    retire(q, 'operator')
  elseif q[Q_RETIRED] == 'operator' then
    revive(q)
  end
end

-- E5: new rules take effect at once: the queue is retired, revived, or put on another list.
local function set(q, old)
  local r = rules_of(q)
  keep_pace(q, r) -- D1: a lower rate counts from the last lease
  if r[R_PAUSED] ~= old[R_PAUSED] then
    q[Q_PAUSED] = r[R_PAUSED]
  end
  retire_by_rule(q, old, r)
  if is_over_budget(q, r) then
    retire(q, 'budget')
  elseif q[Q_RETIRED] == 'budget' then
    revive(q)
  end
  refresh(q, false)
  if q[Q_LIST_STATE] ~= UNLISTED then
    unlist(q)
    choose_list(q, r)
    set_wake_at(q, wake_time(q, r))
  end
end

-- D1: the earliest time `wake` may set: the last visit's end (or start) + delay.
local function earliest(q)
  local r, time = rules_of(q), 0
  local ended = r[R_FROM_START] and q[Q_LAST_START] or q[Q_LAST_END]
  local is_known = q[Q_LAST_END] >= 0 or r[R_SPREAD] > 0 -- drawn, it is known before an end
  if is_known and ended >= 0 then
    time = ended + delay_of(q, r)
  end
  local gap = gap_of(q, r)
  if gap and q[Q_LAST_START] >= 0 then
    time = max(time, q[Q_LAST_START] + gap)
  end
  return time
end

local actions = {
  set = set,
  pause = function(q)
    q[Q_PAUSED] = true
    refresh(q, true)
  end,
  resume = function(q)
    q[Q_PAUSED] = false
    reschedule(q)
  end,
  retire = function(q)
    retire(q, 'operator')
  end,
  revive = function(q)
    q[Q_THROTTLES_IN_ROW], q[Q_UNREACHABLE_IN_ROW], q[Q_BLOCKS_IN_ROW] = 0, 0, 0
    q[Q_ERRORS_IN_ROW] = 0
    if q[Q_RETIRED] ~= '' then
      revive(q)
    end
  end,
  snooze = function(q)
    postpone(q, now + action[2], 'operator')
    refresh(q, false)
  end,
  wake = function(q)
    q[Q_NEXT_READY], q[Q_WAIT_REASON] = min(q[Q_NEXT_READY], earliest(q)), 'delay'
    refresh(q, false)
  end,
}

sign(ARGV[8])
if action[3] then
  replace_rules(action[3], action[4])
end
for _, one in ipairs(wanted) do
  local q = queue_by_number(one[1])
  local old = rules_of(q)
  q[Q_RULES] = rules_number(batch, one[3])
  actions[action[1]](q, old)
end
C[C_RULES_APPLIED] = C[C_RULES_APPLIED] or action[5]
commit()
return 1
