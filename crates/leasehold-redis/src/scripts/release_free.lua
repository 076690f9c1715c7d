-- Ends an attempt or a hold. KEYS[5] the owner's tombstone, KEYS[6] whose hold was broken last.
-- ARGV: owner, keep ms (0: free it), tombstone ms (0: no try is unanswered), always (1: hand over without end),
-- token ('': not known).
-- Answers: 'freed' | 'expired' | 'another' | 'broken'

-- Ours, nobody waits, and nothing is to stay: nearly always so, and then not even the time is of interest.
if ARGV[2] == '0' and ARGV[3] == '0' and ARGV[5] ~= '' and redis.pcall('GET', KEYS[1]) == ARGV[1]
  and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('SET', KEYS[2], ARGV[5], 'XX', 'KEEPTTL')
  return 'freed'
end
