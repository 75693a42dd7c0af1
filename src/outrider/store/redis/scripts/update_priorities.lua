-- include: reorder
-- update_priorities: give pending tasks new priorities.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of each task's number, the priority it was read with and its new one (eight
-- bytes each), and the breakdown of the new one.
-- Returns how many tasks were pending with the priority that was read.
local updates, changed = decode(ARGV[5]), 0
if not C then -- I1
  return 0
end
check_memory()
if C[C_STATUS] ~= 'cancelled' then
  for _, update in ipairs(updates) do
    local number, seen, new, breakdown = unpack(update)
    local t = task_by_number(number)
    if t and t[T_STATE] == PENDING and sub(t[T_ORDER], 3, 10) == seen then
      t[T_TEXT] = sub(t[T_TEXT], 1, t[T_SPLIT]) .. breakdown
      reorder(number, t, sub(t[T_ORDER], 1, 2) .. new .. sub(t[T_ORDER], 11))
      changed = changed + 1
    end
  end
end
commit()
return changed
