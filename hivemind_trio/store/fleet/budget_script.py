"""Script for budgets. It is `scheduler/sharing/budget_pot.py`; tests hold the two against each other.

The first key is what the store knows of nodes: `n:NODE`, and the fields of `LIFE`. The others are accounts: `n:NODE`
is the row of a node, `s:SLOT` an amount, `sets` as in the model. All have one hash tag.
"""

from __future__ import annotations

from typing import Final

from .life_script import LIFE

SPEND: Final = (
    LIFE
    + """
local node, epoch, seq, nodes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local told, complete, channel = ARGV[5], ARGV[6] == '1', ARGV[7]
local learning_ms, forget, present = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local again0, used_up_again, learn_again = tonumber(ARGV[11]), tonumber(ARGV[12]), tonumber(ARGV[13])
local slices, parts, keep_ms = tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local about = ARGV[17]
local meta = KEYS[1]
local function text(number) return string.format('%.0f', number) end

local life, till, turns = turn(meta, learning_ms, forget, false)
local known, raw = {}, redis.call('HGETALL', meta)
for i = 1, #raw, 2 do
  if string.sub(raw[i], 1, 2) == 'n:' then known[string.sub(raw[i], 3)] = cjson.decode(raw[i + 1]) end
end
local function remember(name) redis.call('HSET', meta, 'n:' .. name, cjson.encode(known[name])) end
if turns then
  for name, one in pairs(known) do one.c = false remember(name) end
end
redis.call('PEXPIRE', meta, keep_ms)
for name, one in pairs(known) do
  if now - one.t >= forget then known[name] = nil redis.call('HDEL', meta, 'n:' .. name) end
end
local mine = known[node]
if mine and epoch < mine.e then return 'fenced' end
local function reply(answers, wake)
  return '{"run":' .. cjson.encode(life) .. ',"accounts":[' .. table.concat(answers, ',') .. '],"wake":'
    .. cjson.encode(table.concat(wake, '\\n')) .. '}'
end
if mine and epoch == mine.e and seq <= mine.q then return reply({}, {}) end
if mine and mine.e == epoch and mine.c then complete = true end
complete = complete and told == life
known[node] = {e = epoch, q = seq, t = now, c = complete}
remember(node)

local function pot_of(key, ask)
  local pot = {key = key, ask = ask, rows = {}, slots = {}, sets = 0}
  local found = redis.call('HGETALL', key)
  for i = 1, #found, 2 do
    local kind, name = string.sub(found[i], 1, 2), string.sub(found[i], 3)
    if kind == 'n:' then pot.rows[name] = cjson.decode(found[i + 1])
    elseif kind == 's:' then pot.slots[tonumber(name)] = tonumber(found[i + 1])
    elseif found[i] == 'sets' then pot.sets = tonumber(found[i + 1]) end
  end
  return pot
end
local function save(pot, name)
  redis.call('HSET', pot.key, 'n:' .. name, cjson.encode(pot.rows[name]))
end
local function length(ask) return math.max(1, math.floor(ask.w / slices)) end
local function slice(ask, at) return at - at % length(ask) end
local function ends(ask, slot) return slot + length(ask) + ask.w end
local function set(pot, slot, amount)
  pot.slots[slot] = amount
  if amount then redis.call('HSET', pot.key, 's:' .. text(slot), text(amount))
  else redis.call('HDEL', pot.key, 's:' .. text(slot)) end
end
local function add(pot, slot, amount)
  if amount ~= 0 then set(pot, slot, (pot.slots[slot] or 0) + amount) end
end
local function out_of(row) return row.d - row.p - row.r end
local function out(pot)
  local sum = 0
  for _, row in pairs(pot.rows) do sum = sum + out_of(row) end
  return sum
end
local function spent(pot)
  if pot.ask.z ~= 0 then return pot.slots[pot.ask.z] or 0 end
  local sum = 0
  for slot, amount in pairs(pot.slots) do if ends(pot.ask, slot) > now then sum = sum + amount end end
  return sum
end
local function limit(pot)
  local least = pot.ask.m
  for _, row in pairs(pot.rows) do
    if now - row.t < present and row.m ~= -1 and (least == -1 or row.m < least) then least = row.m end
  end
  return least
end
local function sorted(pot)
  local order = {}
  for slot, _ in pairs(pot.slots) do order[#order + 1] = slot end
  table.sort(order)
  return order
end

local function take(pot)
  local ask, order = pot.ask, sorted(pot)
  for i, slot in ipairs(order) do
    if ask.z ~= 0 then
      if i <= #order - 2 then set(pot, slot, nil) end
    elseif ends(ask, slot) <= now then set(pot, slot, nil) end
  end
  for name, row in pairs(pot.rows) do
    row.t = math.min(row.t, now)
    local silent = now - row.t
    if name ~= node and silent >= forget then
      local left = out_of(row)
      if left ~= 0 then
        add(pot, row.z ~= 0 and row.z or slice(ask, now), left)
        row.p = row.p + left
        save(pot, name)
      end
      if silent >= ask.w + forget then
        pot.rows[name] = nil
        redis.call('HDEL', pot.key, 'n:' .. name)
      end
    end
  end
  local row = pot.rows[node]
  local slot = ask.z ~= 0 and ask.z or slice(ask, now)
  local function born()
    return {e = epoch, i = ask.i, m = ask.m, t = now, z = ask.z, d = 0, p = 0, r = 0, o = 0, l = 0, s = 0, u = 0}
  end
  if not row then
    if ask.report == cjson.null then return nil end
    for _, one in ipairs(ask.report) do
      add(pot, ask.z ~= 0 and ask.z or slice(ask, now - one[1]), one[2])
    end
    row = born()
    row.p = ask.p
  elseif row.e ~= epoch or row.i ~= ask.i then
    if ask.closes ~= cjson.null and ask.closes[1] == row.e then
      add(pot, slot, math.max(0, ask.closes[2] - row.p))
    else
      add(pot, slot, out_of(row))
    end
    row = born()
  end
  if ask.p > row.p then
    add(pot, slot, ask.p - row.p)
    row.p = ask.p
  end
  row.r = math.max(row.r, ask.r)
  row.d = math.max(row.d, ask.d, row.p + row.r)
  row.m, row.t, row.z = ask.m, now, ask.z
  if ask.set ~= cjson.null and ask.o > row.o then
    row.o = ask.o
    if ask.z ~= 0 then
      if pot.slots[ask.z] then set(pot, ask.z, nil) end
    else
      for _, one in ipairs(sorted(pot)) do set(pot, one, nil) end
    end
    add(pot, slot, ask.set)
    pot.sets = pot.sets + 1
    redis.call('HSET', pot.key, 'sets', pot.sets)
  end
  pot.rows[node] = row
  redis.call('PEXPIRE', pot.key, ask.w + forget + 3600000)
  return row
end

local function opens(pot, over)
  if pot.ask.z ~= 0 then return used_up_again end
  for _, slot in ipairs(sorted(pot)) do
    over = over - pot.slots[slot]
    if over < 0 then return math.max(1, ends(pot.ask, slot) - now) end
  end
  return used_up_again
end

local function answer(pot, row, learning)
  local ask, waiting = pot.ask, {}
  for name, one in pairs(pot.rows) do
    if name ~= node and one.l > 0 and one.u > now then waiting[#waiting + 1] = {name, one} end
  end
  local since = now
  if row.l > 0 and row.u > now then since = row.s end
  row.l = 0
  local most, used, drawn = limit(pot), spent(pot), out(pot)
  local granted = 0
  if ask.least > 0 and not learning and most ~= -1 then
    local ahead = 0
    for _, pair in ipairs(waiting) do
      local name, one = pair[1], pair[2]
      if not ask.waits or one.s < since or (one.s == since and name < node) then ahead = ahead + one.l end
    end
    local room = most - used - drawn - ahead
    if room >= ask.least then
      granted = math.min(room, math.max(ask.least, math.floor(room / (parts * nodes))))
    elseif ask.waits and ahead == 0 and used < most and drawn - ask.idle <= 0 then
      granted = ask.least
    end
    row.d = row.d + granted
  end
  local short = ask.least > granted and most ~= -1
  local later = 0
  if most ~= -1 and used >= most then later = opens(pot, used - most) end
  row.k = later > 0
  local again = learning and learn_again or again0
  if later > 0 and not learning then again = math.min(math.max(later, again0), used_up_again) end
  if short and ask.waits then row.l, row.s, row.u = ask.least, since, now + again + again0 end
  save(pot, node)
  return cjson.encode({drawn = row.d, settled = row.p, spent = used, out = drawn + granted, short = short,
    scarce = #waiting > 0, again = again, opens = later, sets = pot.sets, anew = false})
end

local taken = {}
for i = 2, #KEYS do
  local pot = pot_of(KEYS[i], cjson.decode(ARGV[16 + i]))
  taken[#taken + 1] = {pot, take(pot)}
end
local learning = false
if till >= 0 then
  local count = 0
  for _, one in pairs(known) do if one.c then count = count + 1 end end
  learning = learns(meta, till, count, nodes, learning_ms)
end
local answers, called, wake = {}, {}, {}
for i, pair in ipairs(taken) do
  local pot, row = pair[1], pair[2]
  if not row then
    answers[i] = cjson.encode({drawn = 0, settled = 0, spent = 0, out = 0, short = false, scarce = false,
      again = learn_again, opens = 0, sets = pot.sets, anew = true})
  else
    answers[i] = answer(pot, row, learning)
    local most, used, drawn = limit(pot), spent(pot), out(pot)
    for name, one in pairs(pot.rows) do
      local waits = one.l > 0 and one.u > now
      local serves = not one.k
      if used < most then serves = most - used - drawn >= one.l or drawn == 0 end
      if not waits then serves = row.l > 0 and out_of(one) > 0 end
      if name ~= node and serves then called[name] = true end
    end
  end
end
for name, _ in pairs(called) do wake[#wake + 1] = name end
table.sort(wake)
for _, name in ipairs(wake) do redis.call('PUBLISH', channel .. name, about) end
return reply(answers, wake)
"""
)
