-- include: leases
-- extend: move the deadlines of leases.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: milliseconds from now. ARGV[6]: msgpack of pairs of task number and token.
-- Returns the positions of the pairs whose lease is still held.
local held = {}
for position, pair in ipairs(decode(ARGV[6])) do
  local t = lease_by_token(pair[1], pair[2])
  if t and t[T_STATE] == LEASED then
    call('ZADD', deadlines, now + ARGV[5], pack('>I5', pair[1]))
    held[#held + 1] = position
  end
end
return held
