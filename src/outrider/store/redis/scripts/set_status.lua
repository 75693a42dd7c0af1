-- include: schedule
-- set_status: change the status of a crawl.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the status. ARGV[6]: the reason. ARGV[7]: msgpack of the statuses it may follow.
-- ARGV[8]: who acts (see `sign`).
-- Returns the status after this.
if not C then -- I1
  return 'cancelled'
end
check_memory()
sign(ARGV[8])
for _, before in ipairs(decode(ARGV[7])) do
  if before == C[C_STATUS] then
    change_status(ARGV[5], ARGV[6])
    break
  end
end
commit()
return C[C_STATUS]
