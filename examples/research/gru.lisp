; A GRU over sequences of numbers ("Learning Phrase Representations", Cho et al. 2014), and what class its last state says.
(require nn arrays training)
(config inputs 4  width 8  classes 5)
(weights (x-w [(* 3 width) inputs] {:init (normal 0.3)}) (x-b [(* 3 width)]) (h-w [(* 3 width) width] {:init (normal 0.3)})
  (h-b [(* 3 width)]) (head-w [classes width] {:init (normal 0.3)}))

(defn cell [h row]
  (let [[reset keep new] (split row [width width width] 1)
        [h-reset h-keep h-new] (split (linear h h-w h-b) [width width width] 1)
        keep (sigmoid (+ keep h-keep))
        new (tanh (+ new (* (sigmoid (+ reset h-reset)) h-new)))]
    [(+ new (* keep (- h new))) nil]))

(entry fit [(x [length batch inputs] f32) (labels [batch] i32)]
  (let [[length n _] (shape x)
        told (reshape (linear (reshape x [(* length n) inputs]) x-w x-b) [length n (* 3 width)])
        [h _] (scan cell (full [n width] 0.0 f32) told)
        [loss right] (cross-entropy (matmul-transposed h head-w) labels classes)]
    {:loss loss :right right}))
(training fit)
