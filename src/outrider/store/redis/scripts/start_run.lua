-- include: schedule
-- start_run: a task was added on another shard, so a finished crawl runs again.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua. ARGV[5]: who acts (see `sign`).
-- Returns 1.
if not C then -- I1: it was removed since
  return 1
end
check_memory()
sign(ARGV[5])
if C[C_STARTED] < 0 then
  C[C_STARTED] = now
end
work_added()
commit()
return 1
