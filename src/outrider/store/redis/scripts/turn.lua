-- turn: 5 the status, 6 the reason, 7 those it may follow. Answers with the status that holds.
open()
for _, before in ipairs(decode(ARGV[7])) do
  if before == C[C_STATUS] then
    move_to(ARGV[5], ARGV[6])
    break
  end
end
commit()
return C[C_STATUS]
