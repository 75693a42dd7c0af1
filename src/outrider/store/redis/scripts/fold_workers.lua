-- include: crawl
-- fold_workers: replace the first removed workers of a crawl by one with the sum of their totals.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: how many. ARGV[6]: the first of them, ARGV[7]: the last, as they were read. ARGV[8]: their
-- sum.
-- Returns 1, or 0 if another caller was first.
check_memory()
local gone, count = prefix .. K_GONE_WORKERS, tonumber(ARGV[5])
if call('LINDEX', gone, 0) ~= ARGV[6] or call('LINDEX', gone, count - 1) ~= ARGV[7] then
  return 0
end
call('LTRIM', gone, count, -1)
call('LPUSH', gone, ARGV[8])
return 1
