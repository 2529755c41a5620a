;; A component of another world: it is whole, and has no `handle`.
(component
  (core module $code
    (func (export "run") (result i32)
      i32.const 7))
  (core instance $instance (instantiate $code))
  (func (export "run") (result u32)
    (canon lift (core func $instance "run"))))
