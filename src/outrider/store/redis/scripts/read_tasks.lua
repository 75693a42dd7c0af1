-- include: index
-- read_tasks: read tasks.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: a fingerprint; or "", and ARGV[6] and ARGV[7] the first and the last number, ARGV[8] how
-- many bytes: the task that reaches them is the last one.
-- Returns the crawl's row, the time, how many bytes are left, and two values per task: its number and
-- its row; nil and the time if there is no crawl.
if not C then
  return { false, now, 0 }
end
local found, room = { encode(C), now, 0 }, tonumber(ARGV[8]) or 0
local function append(number)
  local row = call('HGET', chunk_key(K_TASKS, number), number)
  found[#found + 1] = number
  found[#found + 1] = row
  room = room - long_bytes(row)
end
if ARGV[5] ~= '' then
  local number = index_find(K_KNOWN, C_KNOWN_BUCKETS, ARGV[5])
  if number then
    append(number)
  end
else
  for number = ARGV[6], min(ARGV[7], C[C_LAST_TASK]) do
    append(number)
    if room <= 0 then
      break
    end
  end
end
found[3] = room
return found
