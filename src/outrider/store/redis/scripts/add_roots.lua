-- include: schedule
-- add_roots: add roots to a mode of the scope, each once, in order.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the mode. ARGV[6..]: the roots.
-- Returns how many roots the mode has.
if not C then -- I1
  return 0
end
check_memory()
local list = prefix .. K_ROOTS .. ARGV[5]
call('SADD', prefix .. K_MODES, ARGV[5])
local count = call('ZCARD', list)
for position = 6, #ARGV do
  count = count + call('ZADD', list, 'NX', count + 1, ARGV[position])
end
commit()
return count
