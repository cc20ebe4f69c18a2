; A policy and its value: the clipped objective of "Proximal Policy Optimization", Schulman et al. 2017.
(require nn arrays training)
(config observed 6  width 16  actions 4  clipped-at 0.2)
(weights (in-w [width observed] {:init (normal 0.3)}) (in-b [width]) (mid-w [width width] {:init (normal 0.3)})
  (mid-b [width]) (policy-w [actions width] {:init (normal 0.1)}) (value-w [1 width] {:init (normal 0.1)}))

(entry fit [(seen [batch observed] f32) (action [batch] i32) (before [batch] f32) (advantage [batch] f32)
            (returns [batch] f32)]
  (let [n (dim seen 0)
        h (tanh (linear (tanh (linear seen in-w in-b)) mid-w mid-b))
        logs (log-softmax (matmul-transposed h policy-w))
        value (reshape (matmul-transposed h value-w) [n])
        ratio (exp (- (tensor [b n] (at logs b (at action b))) before))
        held (max (- 1.0 clipped-at) (min (+ 1.0 clipped-at) ratio))
        gain (/ (sum (min (* ratio advantage) (* held advantage))) (* 1.0 n))
        off (/ (sum (square (- value returns))) (* 1.0 n))
        spread (/ (- 0.0 (sum (sum (* (exp logs) logs)))) (* 1.0 n))]
    {:loss (- (* 0.5 off) (+ gain (* 0.01 spread))) :entropy spread}))
(training fit)
