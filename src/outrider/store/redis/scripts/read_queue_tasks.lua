-- include: index
-- read_queue_tasks: read tasks of a queue, in order of their numbers.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the digest of its key. ARGV[6]: the number after which to begin. ARGV[7]: how many tasks
-- at most. ARGV[8]: the number of the state they are shown in; -1: any. ARGV[9]: how many to
-- examine. ARGV[10]: how many bytes: the task that reaches them is the last one.
-- Returns the crawl's row, the time, how many were examined (-1: there is no such queue), the number
-- after which to go on (0: there are no more), how many bytes are left, and two values per task: its
-- number and its row; nil and the time if there is no crawl. I3: of a cancelled crawl, tasks in other states than the one
-- wanted may be among them.
if not C then
  return { false, now }
end
local queue = index_find(K_KEYS, C_KEY_BUCKETS, ARGV[5])
if not queue then
  return { encode(C), now, -1, 0, 0 }
end
local limit, state, most = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
if C[C_STATUS] == 'cancelled' then -- I3: pending and leased tasks are shown as dropped
  if state == PENDING or state == LEASED then
    return { encode(C), now, 0, 0, 0 }
  end
  state = -1
end
local list = prefix .. K_QUEUE_TASKS .. queue
local first, length = position_in_queue_tasks(list, tonumber(ARGV[6])), call('STRLEN', list) / 5
local packed = call('GETRANGE', list, first * 5, (first + most) * 5 - 1)
local found, examined, number = { encode(C), now, 0, 0, 0 }, 0, 0
local room = tonumber(ARGV[10])
while examined < #packed / 5 and #found < 5 + 2 * limit and room > 0 do
  number, examined = unpack_bytes('>I5', packed, examined * 5 + 1), examined + 1
  local row = call('HGET', chunk_key(K_TASKS, number), number)
  local _, is, _, _, of = unpack_values(row, 4, byte(row) == 220 and 4 or 2)
  if of == queue and (state < 0 or is == state) then
    found[#found + 1] = number
    found[#found + 1] = row
    room = room - long_bytes(row)
  end
end
found[3], found[4], found[5] = examined, first + examined < length and number or 0, room
return found
