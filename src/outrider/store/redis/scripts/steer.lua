-- steer: 5 the act: its name, milliseconds, the crawl's new rules (numbers, JSON) if it says any,
-- whether every queue has heard; 6 a batch that tells rules only; 7 of each queue its number, the
-- number of the rules it goes by, and the place of those it shall. Answers with 1; nil: ask again.
local said, batch, wanted = decode(ARGV[5]), read_batch(ARGV[6]), decode(ARGV[7])
if is_stale() then
  return false
end
for _, one in ipairs(wanted) do
  if queue_of(one[1])[Q_RULES] ~= one[2] then
    return false
  end
end
open()

local function retire_by_rule(q, old, r)
  if r[R_RETIRED] == old[R_RETIRED] then
    return
  elseif r[R_RETIRED] then
    retire(q, 'operator')
  elseif q[Q_RETIRED] == 'operator' then
    bring_back(q)
  end
end

-- E5: `set` acts at once: retires, returns, or judges anew what stands.
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
    bring_back(q)
  end
  look_at(q, false)
  if q[Q_STANDING] ~= NEITHER then
    stand_down(q)
    judge(q, r)
    set_alarm(q, alarm_at(q, r))
  end
end

-- D1: how far back `wake` may go: the last visit's end (or start) + delay.
local function earliest(q)
  local r, floor_ = rules_of(q), 0
  local ended = r[R_FROM_START] and q[Q_LAST_START] or q[Q_LAST_END]
  if q[Q_LAST_END] >= 0 and ended >= 0 then
    floor_ = ended + delay_of(q, r)
  end
  local gap = gap_of(q, r)
  if gap and q[Q_LAST_START] >= 0 then
    floor_ = max(floor_, q[Q_LAST_START] + gap)
  end
  return floor_
end

local acts = {
  set = set,
  pause = function(q)
    q[Q_PAUSED] = true
    look_at(q, true)
  end,
  resume = function(q)
    q[Q_PAUSED] = false
    touch(q)
  end,
  retire = function(q)
    retire(q, 'operator')
  end,
  revive = function(q)
    q[Q_THROTTLES_IN_ROW], q[Q_UNREACHABLE_IN_ROW], q[Q_BLOCKS_IN_ROW] = 0, 0, 0
    q[Q_ERRORS] = 0
    if q[Q_RETIRED] ~= '' then
      bring_back(q)
    end
  end,
  snooze = function(q)
    postpone(q, now + said[2], 'operator')
    look_at(q, false)
  end,
  wake = function(q)
    q[Q_NEXT_READY], q[Q_WHY] = min(q[Q_NEXT_READY], earliest(q)), 'delay'
    look_at(q, false)
  end,
}

if said[3] then
  obey(said[3], said[4])
end
for _, one in ipairs(wanted) do
  local q = queue_of(one[1])
  local old = rules_of(q)
  q[Q_RULES] = rules_number(batch, one[3])
  acts[said[1]](q, old)
end
C[C_TOLD] = C[C_TOLD] or said[5]
commit()
return 1
