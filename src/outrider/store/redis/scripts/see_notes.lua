-- notes: 5 the last number the caller knows, 6 how many. Answers with two values a note: its label,
-- and what is kept of it; with fewer if they are long, and with none only if there are none.
local found, size = {}, 0
if not C then
  return found
end
local after, most = '(' .. ARGV[5], ARGV[6]
for _, label in ipairs(call('ZRANGEBYSCORE', at .. K_NOTED, after, '+inf', 'LIMIT', 0, most)) do
  local note = call('HGET', at .. K_NOTES, label)
  found[#found + 1] = label
  found[#found + 1] = note
  size = size + #note
  if size > NOTES_BYTES then
    break
  end
end
return found
