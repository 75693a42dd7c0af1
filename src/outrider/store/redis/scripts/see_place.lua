-- place: 5 a task's number. Answers with the crawl's row, the moment, how many of its queue and
-- lane are before it, then what is shown of its queue.
local number = tonumber(ARGV[5])
local t = C and task_of(number)
if not t then
  return { false, now }
end
local q, ahead = queue_of(t[T_QUEUE]), 0
if t[T_STATE] == PENDING then
  local entry, lane = entry_of(number, t), t[T_LANE]
  ahead = call('ZLEXCOUNT', lane_of(q, lane), '-', '(' .. entry)
  local delayed = call('ZRANGE', at .. K_DELAYED .. q[Q_NUMBER], 0, DELAYED_MOST - 1)
  for _, member in ipairs(delayed) do
    if byte(member) == lane and is_before(sub(member, 2), entry) then
      ahead = ahead + 1
    end
  end
end
local found = { encode(C), now, ahead }
shown(q, found)
return found
