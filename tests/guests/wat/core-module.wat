;; A core module: WebAssembly, and no component.
(module
  (func (export "handle") (result i32)
    i32.const 0))
