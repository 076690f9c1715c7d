-- Takes the lock from this owner. KEYS: L F, and where the owner that lost it so is kept for it to ask.
-- ARGV: owner. Answers 1 if it was there, 0 if not.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
-- Whoever had it knows by its own clock once that time is over.
redis.call('SET', KEYS[3], ARGV[1], 'PX', math.max(redis.call('PTTL', KEYS[1]), 1))
redis.call('DEL', KEYS[1])
local channel = redis.call('HGET', KEYS[2], 'h')
redis.call('HDEL', KEYS[2], 'o', 'n', 'm', 'g', 'h')
if channel then redis.pcall('PUBLISH', channel, 'broken ' .. ARGV[1]) end
return 1
