-- add_roots: 5 the mode, then the roots; once each, in order of their coming.
open()
local line = at .. K_ROOTS .. ARGV[5]
call('SADD', at .. K_MODES, ARGV[5])
local coming = call('ZCARD', line)
for place = 6, #ARGV do
  coming = coming + call('ZADD', line, 'NX', coming + 1, ARGV[place])
end
commit()
return coming
