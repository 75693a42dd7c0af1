-- include: index
-- read_known: tell which queues and tasks exist.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: how many digests of keys follow. ARGV[6..]: these, then fingerprints.
-- Returns the crawl's row, the time, and 1 or 0 for each; nil and the time if there is no crawl.
if not C then
  return { false, now }
end
local found = { encode(C), now }
for position = 6, #ARGV do
  local is_key = position - 5 <= tonumber(ARGV[5])
  local number
  if is_key then
    number = index_find(K_KEYS, C_KEY_BUCKETS, ARGV[position])
  else
    number = index_find(K_KNOWN, C_KNOWN_BUCKETS, ARGV[position])
  end
  found[#found + 1] = number and 1 or 0
end
return found
