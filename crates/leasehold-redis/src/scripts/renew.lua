-- Renews many holds at once; never creates, never shortens.
-- KEYS: L and F of each. ARGV: owner and ttl ms of each. Answers one number each:
-- 1 renewed, 0 expired, 2 another's.
local call = redis.call
local answers = {}
for i = 1, #KEYS, 2 do
  local L, F = KEYS[i], KEYS[i + 1]
  local owner, ttl = ARGV[i], tonumber(ARGV[i + 1])
  local current = redis.pcall('GET', L)
  -- Refused for another reason than its type: that says nothing about the hold.
  if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
  if current == owner then
    if call('PTTL', L) < ttl then call('PEXPIRE', L, ttl) end
    -- A hold that is renewed for weeks keeps its counter.
    if call('PTTL', F) < 518400000 then call('PEXPIRE', F, 604800000) end
    answers[#answers + 1] = 1
  else
    answers[#answers + 1] = current and 2 or 0
  end
end
return answers
