-- include: queue_view
-- read_position: count the tasks before a task.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the task's number.
-- Returns the crawl's row, the time, how many tasks of its queue and lane are before it, and the
-- four values of append_queue_view for its queue; nil and the time if there is no such task.
local number = tonumber(ARGV[5])
local t = C and task_by_number(number)
if not t then
  return { false, now }
end
local q, ahead = queue_by_number(t[T_QUEUE]), 0
if t[T_STATE] == PENDING then
  local entry, lane = entry_of(number, t), t[T_LANE]
  ahead = call('ZLEXCOUNT', lane_key(q, lane), '-', '(' .. entry)
  local delayed = call('ZRANGE', prefix .. K_DELAYED .. q[Q_NUMBER], 0, MAX_DELAYED_COUNTED - 1)
  for _, member in ipairs(delayed) do
    if byte(member) == lane and is_before(sub(member, 2), entry) then
      ahead = ahead + 1
    end
  end
end
local found = { encode(C), now, ahead }
append_queue_view(q, found)
return found
