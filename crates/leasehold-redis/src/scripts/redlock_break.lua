-- Takes the lock from this owner. KEYS: L F. ARGV: owner. Answers 1 if it was there, 0 if not.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
local channel = redis.call('HGET', KEYS[2], 'h')
redis.call('HDEL', KEYS[2], 'o', 'n', 'm', 'g', 'h')
redis.call('HSET', KEYS[2], 'b', ARGV[1])
if redis.call('PTTL', KEYS[2]) < 0 then redis.call('PEXPIRE', KEYS[2], 604800000) end
if channel then redis.pcall('PUBLISH', channel, 'broken ' .. ARGV[1]) end
return 1
