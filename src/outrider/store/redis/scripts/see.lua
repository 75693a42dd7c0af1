-- One reading command under a crawl: 5 the command, 6 the rest of its key, then its arguments.
-- Answers with the crawl's row, the moment, and what was read; nothing if there is no crawl.
if not C then
  return { false, now }
end
return { encode(C), now, call(ARGV[5], at .. ARGV[6], unpack(ARGV, 7)) }
