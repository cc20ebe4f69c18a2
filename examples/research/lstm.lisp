; An LSTM over sequences of numbers, and what class its last state says.
(require nn arrays training)
(config inputs 4  width 8  classes 5)
(weights (x-w [(* 4 width) inputs] {:init (normal 0.3)}) (h-w [(* 4 width) width] {:init (normal 0.3)})
  (b [(* 4 width)]) (head-w [classes width] {:init (normal 0.3)}))

(defn cell [[h c] row]
  (let [[i f g o] (split (+ row (matmul-transposed h h-w)) [width width width width] 1)
        c (+ (* (sigmoid f) c) (* (sigmoid i) (tanh g)))]
    [[(* (sigmoid o) (tanh c)) c] nil]))

(entry fit [(x [length batch inputs] f32) (labels [batch] i32)]
  (let [[length n _] (shape x)
        told (reshape (linear (reshape x [(* length n) inputs]) x-w b) [length n (* 4 width)])
        zeros (full [n width] 0.0 f32)
        [[h c] _] (scan cell [zeros zeros] told)
        [loss right] (cross-entropy (matmul-transposed h head-w) labels classes)]
    {:loss loss :right right}))
(training fit)
