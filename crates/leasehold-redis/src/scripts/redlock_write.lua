-- Writes a token back: if the lock is still the owner's, and the token higher than any that this node accepted.
-- KEYS: L F R. ARGV: owner, token. Answers 1 or 0.
local call = redis.call
local token = tonumber(ARGV[2])
if call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if token <= (tonumber(call('HGET', KEYS[2], 'c')) or token) then return 0 end
local floor = tonumber(call('HGET', KEYS[3], 'floor'))
-- It has lost its memory since it gave the lock.
if not floor then return 0 end
call('HSET', KEYS[2], 'c', ARGV[2], 't', ARGV[2])
call('PEXPIRE', KEYS[2], 604800000)
if token > floor then
  -- A minute ahead of the clock, so that it is seldom written.
  local ahead = (call('TIME')[1] + 60) * 1000000
  call('HSET', KEYS[3], 'floor', string.format('%.0f', math.max(token, ahead)))
end
return 1
