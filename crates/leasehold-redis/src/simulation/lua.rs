//! The scripts, run as the server runs them: by Lua 5.1, with its conversions
//! (<https://redis.io/docs/latest/develop/programmability/lua-api/>).

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use mlua::{Function, Lua, Table, Value, Variadic};

use super::store::{Reply, Store};
use crate::redlock::script as redlock;
use crate::script::{ACQUIRE, BREAK, RELEASE, RENEW};

/// One of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    Release,
    Renew,
    Break,
    Take,
    Write,
    Leave,
    BreakNode,
    Enter,
}

const SCRIPTS: usize = 9;

/// The scripts' texts: the shipped ones, or ones with a fault put in.
#[derive(Clone, Debug)]
pub(crate) struct Texts([String; SCRIPTS]);

impl Texts {
    pub(crate) fn shipped() -> Self {
        let shipped = [
            &ACQUIRE,
            &RELEASE,
            &RENEW,
            &BREAK,
            &redlock::TAKE,
            &redlock::WRITE,
            &redlock::LEAVE,
            &redlock::BREAK,
            &redlock::ENTER,
        ];
        Self(shipped.map(|code| code.text.to_owned()))
    }

    /// Puts a fault in: `right` becomes `wrong`, wherever it stands.
    pub(crate) fn with(mut self, right: &str, wrong: &str) -> Self {
        assert!(
            self.0.iter().any(|text| text.contains(right)),
            "no script says {right}"
        );
        for text in &mut self.0 {
            *text = text.replace(right, wrong);
        }
        self
    }
}

/// An interpreter with a server's memory.
pub(crate) struct Interpreter {
    lua: Lua,
    functions: [Function; SCRIPTS],
    store: Rc<RefCell<Store>>,
}

impl Interpreter {
    pub(crate) fn new(texts: &Texts) -> Self {
        let lua = Lua::new();
        let store = Rc::new(RefCell::new(Store::default()));
        let redis = lua.create_table().unwrap();
        for (name, raises) in [("call", true), ("pcall", false)] {
            let store = store.clone();
            let command = lua.create_function(move |lua, words: Variadic<Value>| {
                let reply = command(&store, &words)?;
                match reply {
                    Reply::Error(text) if raises => Err(mlua::Error::runtime(text)),
                    reply => to_lua(lua, reply),
                }
            });
            redis.set(name, command.unwrap()).unwrap();
        }
        // All that is here is text, and tells itself apart.
        let mark = lua.create_function(|_, value: mlua::LuaString| Ok(value));
        redis.set("sha1hex", mark.unwrap()).unwrap();
        lua.globals().set("redis", redis).unwrap();
        let load = |text: &String| lua.load(text.as_str()).into_function().unwrap();
        let functions = texts.0.each_ref().map(load);
        Self {
            lua,
            functions,
            store,
        }
    }

    pub(crate) fn store(&self) -> RefMut<'_, Store> {
        self.store.borrow_mut()
    }

    /// Runs a script; the error is what the client would be told.
    pub(crate) fn run(
        &self,
        script: Script,
        keys: &[String],
        args: &[String],
    ) -> Result<redis::Value, String> {
        self.call(&self.functions[script as usize], keys, args)
            .map_err(|error| format!("{script:?}: {error}"))
    }

    /// Runs any script.
    pub(crate) fn eval(
        &self,
        text: &str,
        keys: &[String],
        args: &[String],
    ) -> mlua::Result<redis::Value> {
        let function = self.lua.load(text).into_function()?;
        self.call(&function, keys, args)
    }

    fn call(
        &self,
        function: &Function,
        keys: &[String],
        args: &[String],
    ) -> mlua::Result<redis::Value> {
        let globals = self.lua.globals();
        let list = |items: &[String]| {
            self.lua
                .create_sequence_from(items.iter().map(String::as_str))
        };
        globals.set("KEYS", list(keys)?)?;
        globals.set("ARGV", list(args)?)?;
        from_lua(&function.call::<Value>(())?)
    }
}

fn command(store: &RefCell<Store>, words: &[Value]) -> mlua::Result<Reply> {
    let mut texts = Vec::with_capacity(words.len());
    for word in words {
        texts.push(match word {
            Value::String(text) => text.to_str()?.to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                format!("{number:.0}")
            }
            // The real one writes 17 digits, which no integer argument survives.
            Value::Number(number) => format!("{number:.17}"),
            other => {
                return Err(mlua::Error::runtime(format!(
                    "command arguments must be strings or integers, not {}",
                    other.type_name()
                )));
            }
        });
    }
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Ok(store.borrow_mut().command(&texts))
}

fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Int(number) => Value::Number(number as f64),
        Reply::Text(text) => Value::String(lua.create_string(text)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Status(text) => tagged(lua, "ok", text)?,
        Reply::Error(text) => tagged(lua, "err", &text)?,
        Reply::List(items) => {
            let table = lua.create_table()?;
            for (at, item) in items.into_iter().enumerate() {
                table.raw_set(at + 1, to_lua(lua, item)?)?;
            }
            Value::Table(table)
        }
    })
}

fn tagged(lua: &Lua, tag: &str, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set(tag, text)?;
    Ok(Value::Table(table))
}

fn from_lua(value: &Value) -> mlua::Result<redis::Value> {
    Ok(match value {
        Value::String(text) => redis::Value::BulkString(text.as_bytes().to_vec()),
        Value::Integer(number) => redis::Value::Int(*number),
        Value::Number(number) => redis::Value::Int(*number as i64),
        Value::Boolean(true) => redis::Value::Int(1),
        Value::Table(table) => list(table)?,
        _ => redis::Value::Nil,
    })
}

/// A table becomes a list that ends at its first nil.
fn list(table: &Table) -> mlua::Result<redis::Value> {
    if let Value::String(text) = table.raw_get::<Value>("ok")? {
        return Ok(redis::Value::SimpleString(text.to_str()?.to_owned()));
    }
    if let Value::String(text) = table.raw_get::<Value>("err")? {
        return Err(mlua::Error::runtime(text.to_str()?.to_owned()));
    }
    let mut items = Vec::new();
    for at in 1.. {
        match table.raw_get::<Value>(at)? {
            Value::Nil => break,
            item => items.push(from_lua(&item)?),
        }
    }
    Ok(redis::Value::Array(items))
}
