-- include: leases
-- release: give leases back without a visit.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of pairs of task number and token.
-- Returns the positions of the pairs whose lease was held.
check_memory()
local released = {}
for position, pair in ipairs(decode(ARGV[5])) do
  local t = lease_by_token(pair[1], pair[2])
  if t and t[T_STATE] == LEASED then
    release_lease(pair[1], t)
    released[#released + 1] = position
  end
end
if #released > 0 then
  commit()
end
return released
