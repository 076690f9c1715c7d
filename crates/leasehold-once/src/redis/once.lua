-- A record is a hash. Times are milliseconds, and the server's own.
local FIELDS = { 'lock', 'epoch', 'token', 'state', 'started', 'ended', 'result' }

local function leasehold_now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- The record's fields, the time, and for how long it is kept; false where there is none.
local function leasehold_read(key)
  local record = redis.call('HMGET', key, unpack(FIELDS))
  if redis.call('EXISTS', key) == 0 then return false end
  for field = 1, 5 do
    if not record[field] then error('the key ' .. key .. ' holds no record') end
  end
  record[8], record[9] = leasehold_now(), redis.call('PTTL', key)
  return record
end

-- Decimal numbers without leading zeros, compared as text: Lua's own end at 2^53.
local function leasehold_compare(a, b)
  if #a ~= #b then return #a - #b end
  if a == b then return 0 end
  return a > b and 1 or -1
end

local function leasehold_expire(key, span)
  if span == '' then return redis.call('PERSIST', key) end
  return redis.call('PEXPIRE', key, span)
end

-- Begins an attempt and answers false, or answers the record that keeps it from beginning.
local function leasehold_begin(key, lock, epoch, token, kept, window)
  local record = leasehold_read(key)
  if record then
    local done, running = record[4] == 'done', record[4] == 'running'
    local counts = done and (window == '' or tonumber(record[5]) > record[8] - window)
    local order = leasehold_compare(record[2], epoch)
    if order == 0 then order = leasehold_compare(record[3], token) end
    if record[1] ~= lock or counts or order > 0 or (order == 0 and running) then return record end
  end
  redis.call('DEL', key)
  redis.call('HSET', key, 'lock', lock, 'epoch', epoch, 'token', token, 'state', 'running',
    'started', string.format('%.0f', leasehold_now()))
  leasehold_expire(key, kept)
  return false
end

-- Ends the attempt if it is this one and running, and answers true; else the record, or false where there is none.
local function leasehold_end(key, lock, epoch, token, state)
  local record = leasehold_read(key)
  if not record then return false end
  if record[1] ~= lock or record[2] ~= epoch or record[3] ~= token or record[4] ~= 'running' then return record end
  redis.call('HSET', key, 'state', state, 'ended', string.format('%.0f', leasehold_now()))
  return true
end
