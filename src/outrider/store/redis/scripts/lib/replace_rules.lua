-- include: schedule
-- Replace the rules of a crawl; each queue has its old rules until `steer` changes them. `numbers`
-- are the fields by_turn to limit_seconds of the crawl's row, then opens_below and stay_open.
local function replace_rules(numbers, rules)
  C[C_STAY_OPEN] = table.remove(numbers)
  C[C_OPENS_BELOW] = table.remove(numbers)
  for position, value in ipairs(numbers) do
    C[C_BY_TURN + position - 1] = value
  end
  C[C_EPOCH] = C[C_EPOCH] + 1
  call('SET', prefix .. K_RULES, rules)
end
