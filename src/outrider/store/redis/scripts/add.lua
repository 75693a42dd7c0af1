-- add: 5 the batch, 6 heads, 7 texts. Answers with a letter a task; nil: other rules hold.
if is_stale() then
  return false
end
open()
local batch, heads, texts, answers = read_batch(ARGV[5]), ARGV[6], ARGV[7], {}
for place = 1, #heads, HEAD_SIZE do
  answers[#answers + 1] = add(batch, heads, place, texts)
end
check_limits()
commit()
return table.concat(answers)
