-- include: crawl
-- read_crawl: read what is counted of a crawl.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- Returns the crawl's row, the time, kinds, counts, outcomes and timeline; nil and the time if
-- there is no crawl.
if not C then
  return { false, now }
end
return {
  encode(C),
  now,
  call('HGETALL', prefix .. K_KIND_NUMBERS),
  call('HGETALL', prefix .. K_COUNTS),
  call('HGETALL', prefix .. K_OUTCOMES),
  call('LRANGE', prefix .. K_TIMELINE, 0, -1),
}
