-- include: crawl
-- read_workers: read the workers of a crawl, and those that were removed, at one moment.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- Returns the values of both; nil if there is no crawl.
if not C then
  return false
end
return {
  call('HVALS', prefix .. K_WORKERS),
  call('LRANGE', prefix .. K_GONE_WORKERS, 0, -1),
}
