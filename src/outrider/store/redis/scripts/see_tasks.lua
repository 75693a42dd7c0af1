-- Tasks: 5 a fingerprint, or "" and 6 the first and 7 the last number. Answers with the crawl's row
-- and the moment, then two values a task: its number and its row.
if not C then
  return { false, now }
end
local found = { encode(C), now }
local function show(number)
  found[#found + 1] = number
  found[#found + 1] = call('HGET', chunk_of(K_TASKS, number), number)
end
if ARGV[5] ~= '' then
  local number = find(K_KNOWN, C_KNOWN_BUCKETS, ARGV[5])
  if number then
    show(number)
  end
else
  for number = ARGV[6], min(ARGV[7], C[C_COUNT]) do
    show(number)
  end
end
return found
