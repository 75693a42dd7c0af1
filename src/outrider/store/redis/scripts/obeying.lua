-- Other rules of a crawl: queues are told one by one, so each goes by those it knows until then.
local function obey(numbers, rules)
  for place, value in ipairs(numbers) do
    C[C_BY_TURN + place - 1] = value
  end
  C[C_EPOCH] = C[C_EPOCH] + 1
  call('SET', at .. K_RULES, rules)
end
