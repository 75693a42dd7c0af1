-- Which are known: 5 how many digests of keys, then those, then fingerprints. 1 or 0 for each,
-- after the crawl's row and the moment.
if not C then
  return { false, now }
end
local found = { encode(C), now }
for place = 6, #ARGV do
  local is_key = place - 5 <= tonumber(ARGV[5])
  local number
  if is_key then
    number = find(K_KEYS, C_KEY_BUCKETS, ARGV[place])
  else
    number = find(K_KNOWN, C_KNOWN_BUCKETS, ARGV[place])
  end
  found[#found + 1] = number and 1 or 0
end
return found
