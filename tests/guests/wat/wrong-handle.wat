;; A component whose `handle` is of another type than the world's.
(component
  (core module $code
    (func (export "handle") (param i32) (result i32)
      local.get 0))
  (core instance $instance (instantiate $code))
  (func (export "handle") (param "job" u32) (result u32)
    (canon lift (core func $instance "handle"))))
