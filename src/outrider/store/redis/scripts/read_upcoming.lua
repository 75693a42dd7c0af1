-- include: index
-- read_upcoming: read the first due tasks of a queue.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the digest of its key. ARGV[6]: how many at most.
-- Returns the crawl's number, and their rows, in order.
local number = C and C[C_STATUS] ~= 'cancelled' and index_find(K_KEYS, C_KEY_BUCKETS, ARGV[5])
if not number then
  return { 0 }
end
local q, most, due = queue_by_number(number), tonumber(ARGV[6]), {}
for lane = 0, 1 do
  for _, entry in ipairs(call('ZRANGE', lane_key(q, lane), 0, most - 1)) do
    due[#due + 1] = entry
  end
end
local delayed = prefix .. K_DELAYED .. number -- tasks that became due since the queue was refreshed
for _, member in ipairs(call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, MAX_PROMOTED)) do
  due[#due + 1] = sub(member, 2)
end
table.sort(due, is_before)
local rows = { C[C_ID] }
for position = 1, min(most, #due) do
  local task = unpack_bytes('>I5', due[position], 17)
  rows[position + 1] = call('HGET', chunk_key(K_TASKS, task), task)
end
return rows
