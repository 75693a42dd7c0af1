-- include: event_positions
-- read_events: read a crawl's log.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the sequence number of the last event the caller has. ARGV[6]: how many at most.
-- Returns the events, each as msgpack.
if not C then
  return {}
end
local from = first_event_after(tonumber(ARGV[5]))
return call('LRANGE', prefix .. K_EVENTS, from, from + ARGV[6] - 1)
