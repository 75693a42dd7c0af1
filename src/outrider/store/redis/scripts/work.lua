-- work: a task came to another shard, so a finished crawl runs again.
open()
if C[C_FIRST] < 0 then
  C[C_FIRST] = now
end
worked()
commit()
return 1
