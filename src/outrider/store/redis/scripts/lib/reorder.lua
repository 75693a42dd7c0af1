-- include: schedule
-- C2: give a pending task another order key; its due time stays.
local function reorder(number, t, order)
  local q = queue_by_number(t[T_QUEUE])
  remove_entry(q, t[T_LANE], entry_of(number, t))
  count_priority(t[T_ORDER], -1)
  count_priority(order, 1)
  t[T_ORDER] = order
  insert_entry(q, t[T_LANE], entry_of(number, t), due_of(t))
  dirty_tasks[number] = t
  refresh(q, false)
  activate_for_focus(q)
end
