-- C2: a pending task gets another order key, and stands where that says; it stays due when it was.
local function reorder(number, t, order)
  local q = queue_of(t[T_QUEUE])
  leave(q, t[T_LANE], entry_of(number, t))
  t[T_ORDER] = order
  enter(q, t[T_LANE], entry_of(number, t), due_of(t))
  born[number] = t
  look_at(q, false)
  hasten(q)
end
