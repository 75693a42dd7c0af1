-- include: leases
-- expire: end overdue leases.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: how many at most.
-- Returns how many leases were ended.
if not C then
  return 0
end
check_memory()
local expired = expire_overdue(tonumber(ARGV[5]))
if expired > 0 then
  commit()
end
return expired
