-- Other rules of a crawl: queues are told one by one, so each goes by those it knows until then.
-- The last number stands behind the others in the crawl's row: it came later.
local function obey(numbers, rules)
  C[C_OPENS_BELOW] = table.remove(numbers)
  for place, value in ipairs(numbers) do
    C[C_BY_TURN + place - 1] = value
  end
  C[C_EPOCH] = C[C_EPOCH] + 1
  call('SET', at .. K_RULES, rules)
end
