-- expire: 5 how many at most. Answers with how many leases were taken back.
if not C then
  return 0
end
ask_for_room()
local lost = take_back(tonumber(ARGV[5]))
if lost > 0 then
  commit()
end
return lost
