-- reprice: 5 of each task its number, the priority it was seen at, its new one (as bytes that sort)
-- and why. Answers with how many were pending at the priority that was seen.
local prices, reached = decode(ARGV[5]), 0
open()
if C[C_STATUS] ~= 'cancelled' then
  for _, price in ipairs(prices) do
    local number, seen, new, why = unpack(price)
    local t = task_of(number)
    if t and t[T_STATE] == PENDING and sub(t[T_ORDER], 3, 10) == seen then
      t[T_TEXT] = sub(t[T_TEXT], 1, t[T_SPLIT]) .. why
      reorder(number, t, sub(t[T_ORDER], 1, 2) .. new .. sub(t[T_ORDER], 11))
      reached = reached + 1
    end
  end
end
commit()
return reached
