-- include: crawl
-- read: run one reading command on a key of a crawl.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the command. ARGV[6]: the rest of its key. ARGV[7..]: its arguments.
-- Returns the crawl's row, the time, and the command's result; nil and the time if there is no
-- crawl.
if not C then
  return { false, now }
end
return { encode(C), now, call(ARGV[5], prefix .. ARGV[6], unpack(ARGV, 7)) }
