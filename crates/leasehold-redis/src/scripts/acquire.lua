-- One try on a lock that is held or waited for; after acquire_free.lua and queue.lua.
local ttl, alive, queue = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'

-- This owner has been released while a try of it was still on its way: this is that try.
if call('EXISTS', KEYS[5]) == 1 then return {'gone'} end

local current = redis.pcall('GET', L)
if type(current) == 'table' then return {'type', call('TYPE', L).ok} end

if current == owner then
  -- Handed over meanwhile, or the answer to the try that took it was lost: the same grant again.
  local token = call('HGET', F, 'c')
  if call('HGET', F, 'o') ~= owner then token = grant(owner, n, ttl, channel, holder, 0) end
  if call('PTTL', L) < ttl then call('PEXPIRE', L, ttl) end
  leave(owner)
  return {'granted', token, n, ttl}
end

if not current then
  if call('EXISTS', Q) == 0 then return {'granted', grant(owner, n, ttl, channel, holder, 0), n, ttl} end
  local head = first()
  if not head or head == owner then
    leave(owner)
    return {'granted', grant(owner, n, ttl, channel, holder, 0), n, ttl}
  end
  -- Somebody comes first: it is given the lock, whoever looked.
  leave(owner)
  current = pass(0)
  if not current then return {'granted', grant(owner, n, ttl, channel, holder, 0), n, ttl} end
end

if queue then
  local said = call('HGET', W, owner)
  -- A try that was overtaken must not bring an older number back: the lease would count from it.
  local known = said and tonumber(string.match(said, '^(%d+)')) or 0
  if known < tonumber(n) then
    call('HSET', W, owner, n .. ' ' .. alive .. ' ' .. string.format('%.0f', now + alive) .. ' ' .. channel .. ' ' .. holder)
  end
  if not call('ZSCORE', Q, owner) then
    call('ZADD', Q, call('HINCRBY', F, 'q', 1), owner)
    if call('PTTL', F) < 0 then call('PEXPIRE', F, week) end
  end
  -- The queue is gone by itself once nobody in it is alive.
  if call('PTTL', Q) < alive then
    call('PEXPIRE', Q, alive + 1000)
    call('PEXPIRE', W, alive + 1000)
  end
end

local about = call('HMGET', F, 'o', 'c', 'g', 'm')
local ours = about[1] == current
local place = call('ZRANK', Q, owner) or call('ZCARD', Q)
return {'busy', ours and 1 or 0, place, call('PTTL', L), ours and about[2] or '', ours and about[3] or '', ours and about[4] or ''}
