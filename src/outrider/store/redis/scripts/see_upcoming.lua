-- upcoming: 5 the digest of a key, 6 how many. Answers with the rows of its first due tasks.
local number = C and C[C_STATUS] ~= 'cancelled' and find(K_KEYS, C_KEY_BUCKETS, ARGV[5])
if not number then
  return {}
end
local q, most, due = queue_of(number), tonumber(ARGV[6]), {}
for lane = 0, 1 do
  for _, entry in ipairs(call('ZRANGE', lane_of(q, lane), 0, most - 1)) do
    due[#due + 1] = entry
  end
end
local delayed = at .. K_DELAYED .. number -- due since the last look at this queue
for _, member in ipairs(call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, RIPEN_MOST)) do
  due[#due + 1] = sub(member, 2)
end
table.sort(due, is_before)
local rows = {}
for place = 1, min(most, #due) do
  local task = parts('>I5', due[place], 17)
  rows[place] = call('HGET', chunk_of(K_TASKS, task), task)
end
return rows
